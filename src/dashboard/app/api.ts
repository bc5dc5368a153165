import { signal } from '@preact/signals';
import type { Diagnosis } from '../../admin/doctor/doctor.ts';
import type { Partitioning } from '../../outbox/maintaining/list-partitions.ts';
import type { DeadLetterCount } from '../../outbox/operating/count-dead-letters.ts';
import type { DeadLetterGroup } from '../../outbox/operating/group-dead-letters.ts';
import type { EventSummary } from '../../outbox/operating/list.ts';
import type { AuditEntry } from '../../outbox/operating/list-audit.ts';
import type { BlockedAggregate } from '../../outbox/operating/list-blocked.ts';
import type { DeadLetter } from '../../outbox/operating/list-dead-letters.ts';
import type { Me, OutboxGlance } from '../dashboard.ts';
import type { EventStory } from '../event-story.ts';
import type { RunningOperation } from '../operations.ts';
import type { Overview } from '../overview.ts';
import { route } from './route.ts';

/** A value after its way through JSON: dates are texts. */
export type Json<T> = T extends Date ? string : T extends object ? { [K in keyof T]: Json<T[K]> } : T;

export type OverviewData = Json<Overview>;
export type StoryData = Json<EventStory>;
export type ListedEvent = Json<EventSummary>;
export type LetterRow = Json<DeadLetter>;
export type GroupRow = Json<DeadLetterGroup>;
export type BlockedRow = Json<BlockedAggregate>;
export type AuditRow = Json<AuditEntry>;
export type DiagnosisData = Json<Diagnosis>;
export type PartitioningData = Json<Partitioning>;
export type LetterCount = DeadLetterCount;
export type Operation = RunningOperation;
export type Glance = OutboxGlance;

/** A refused request, with the code of the server. `OFFLINE`: the server did not answer. */
export class ApiError extends Error {
  readonly code: string;
  readonly status: number;

  constructor(code: string, message: string, status: number) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

/** Who is signed in. `null`: the user must sign in; `undefined`: not known yet. */
export const me = signal<Me | null | undefined>(undefined);

export function canChange(): boolean {
  return me.value?.role === 'operator';
}

export async function loadMe(): Promise<void> {
  try {
    me.value = await request<Me>('GET', 'me');
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) throw error;
  }
}

export async function signIn(token: string): Promise<void> {
  await request('POST', 'session', { token });
  await loadMe();
}

export async function signOut(): Promise<void> {
  await request('POST', 'session/end', {});
  me.value = null;
}

/** Reads from the current outbox. */
export function get<T>(path: string): Promise<T> {
  return request<T>('GET', `${encodeURIComponent(route.value.outbox)}/${path}`);
}

/** All outboxes at a glance. */
export async function getOutboxes(): Promise<Glance[]> {
  return (await request<{ outboxes: Glance[] }>('GET', 'outboxes')).outboxes;
}

/** Searches or changes the current outbox. */
export function post<T>(path: string, body: object): Promise<T> {
  return request<T>('POST', `${encodeURIComponent(route.value.outbox)}/${path}`, body);
}

/** An address of the API, relative to the page: the dashboard may be mounted below any path. */
export function apiUrl(path: string): string {
  return new URL(`api/${path}`, location.href).href;
}

async function request<T>(method: 'GET' | 'POST', path: string, body?: object): Promise<T> {
  let response: Response;
  try {
    response = await fetch(apiUrl(path), {
      method,
      headers: { 'x-postcommit-dashboard': '1', 'content-type': 'application/json' },
      ...(body && { body: JSON.stringify(body) }),
    });
  } catch {
    throw new ApiError('OFFLINE', 'The dashboard server does not answer.', 0);
  }
  const answer = await response.json().catch(() => undefined);
  if (response.ok) return answer as T;
  if (response.status === 401) me.value = null;
  const { code = 'UNEXPECTED', message = `The server answered ${response.status}.` } = answer?.error ?? {};
  throw new ApiError(code, message, response.status);
}
