import type { OutboxAdmin } from '../admin/admin.ts';
import { ago, duration, quantity, shellOperand } from '../format.ts';
import type { EventDetails } from '../outbox/operating/find.ts';
import { payloadCharactersMax } from '../outbox/operating/find.ts';
import type { DestinationInfo } from '../outbox/operating/list-destinations.ts';
import type { HandlerProgress } from '../outbox/operating/list-progress.ts';
import { defaultQueue } from '../queue-name.ts';
import { describeDestination } from './destination-table.ts';
import { indentJson, JsonText } from './json-text.ts';
import type { Output } from './output.ts';
import { instant, printable } from './output.ts';

const jsonCharactersMax = 4_000;

/** Prints everything that is recorded about one event. `destinations` has the states of those that it waits for. */
export function printEvent(
  event: EventDetails,
  destinations: readonly DestinationInfo[],
  now: Date,
  output: Output,
): void {
  const { paint } = output;
  const field = (name: string, value: string) => output.line(`  ${paint.dim(name.padEnd(13))}${value}`);
  const title = `${printable(event.type)}  ${printable(`${event.aggregate.type}:${event.aggregate.id}`)}`;
  output.line(`${paint.bold(title)}  ${paintStatus(event, output)}`);
  field('id', event.id);
  field('seq', event.seq);
  if (event.sameId.length > 0) {
    const others = `seq ${event.sameId.join(', ')}`;
    field('same id', paint.yellow(`${others}: consumers that deduplicate by id process only one of them`));
  }
  field('emitted', `${instant(event.createdAt)} (${ago(event.createdAt, now)})`);
  field('ordering key', event.key === null ? 'none' : printable(event.key));
  if (event.queue !== defaultQueue) field('queue', printable(event.queue));
  for (const [name, value] of situation(event, destinations, now)) field(name, value);

  output.line();
  output.line(paint.bold('History'));
  for (const { at, text } of history(event)) output.line(`  ${instant(at)}  ${text}`);

  output.line();
  output.line(paint.bold('Headers'));
  for (const line of headerLines(event)) output.line(`  ${line}`);
  output.line();
  output.line(`${paint.bold('Payload')} (schema version ${event.schemaVersion})`);
  for (const line of payloadLines(event)) output.line(`  ${line}`);

  const commands = commandsFor(event);
  if (commands.length === 0) return;
  output.line();
  output.line(paint.bold('Commands'));
  const width = Math.max(...commands.map(([command]) => command.length));
  const program = output.repeatFlags('npx postcommit');
  for (const [command, effect] of commands) output.line(`  ${program} ${command.padEnd(width)}   ${effect}`);
}

/** What the status does not say about where the event is now. */
function situation(event: EventDetails, destinations: readonly DestinationInfo[], now: Date): [string, string][] {
  const facts: [string, string][] = [];
  const { availableAt, holder, waitingBehind, deadLetter } = event;
  if (availableAt) {
    const wait = availableAt.getTime() - now.getTime();
    facts.push(['next attempt', `${instant(availableAt)} (${wait > 0 ? `in ${duration(wait)}` : 'due'})`]);
  }
  if (holder)
    facts.push(['claimed by', `relay ${printable(holder.name)} (host ${printable(holder.host)}, pid ${holder.pid})`]);
  for (const progress of event.progress) facts.push(['progress', describeProgress(progress, now)]);
  if (waitingBehind)
    facts.push(['waits for', `event ${waitingBehind.id} (seq ${waitingBehind.seq}), which must be delivered first`]);
  for (const name of event.waitingFor) {
    const destination = destinations.find((each) => each.name === name);
    const state = destination ? `, which is ${describeDestination(destination, now)}` : '';
    facts.push(['waits for', `destination ${printable(name)}${state}`]);
  }
  if (event.unknownVersion) {
    const { newest, relays } = event.unknownVersion;
    const names = relays.map(printable).join(', ');
    const what = `a relay that knows version ${event.schemaVersion} of its type; the catalogue of ${names} ends at ${newest}`;
    facts.push(['waits for', what]);
  }
  if (event.unqueued) facts.push(['unqueued', 'it was never queued, so no relay delivers it']);
  if (event.done.length > 0) facts.push(['delivered to', event.done.map(printable).join(', ')]);
  if (event.owed.length > 0) facts.push(['owed to', event.owed.map(printable).join(', ')]);
  if (deadLetter?.blocking && !deadLetter.discardedAt) facts.push(['blocks', 'later events with its ordering key']);
  return facts;
}

function describeProgress({ handler, fraction, note, reportedAt }: HandlerProgress, now: Date): string {
  const text = note === null ? '' : `, ${printable(note)}`;
  return `${percent(fraction)} in ${printable(handler)}${text} (${ago(reportedAt, now)})`;
}

/** Rounded down: 100 % means that all is done. */
export function percent(fraction: number): string {
  return `${Math.floor(fraction * 100)} %`;
}

function history(event: EventDetails): { at: Date; text: string }[] {
  const { deadLetter } = event;
  const steps = [
    { at: event.createdAt, text: 'emitted' },
    ...event.failures.map(({ at, attempt, target, code, error, relay }) => ({
      at,
      text:
        code === 'POSTCOMMIT_E_TARGET_FORGOTTEN' || code === 'POSTCOMMIT_E_EVENT_CANCELLED'
          ? printable(error)
          : `attempt ${attempt} failed${target === null ? '' : ` in ${printable(target)}`} (relay ${printable(relay)}): ${printable(error)}`,
    })),
    ...event.deliveries.map(({ at, attempts, targets, relay }) => ({
      at,
      text: `delivered to ${targets.map(printable).join(', ')} (relay ${printable(relay)}), attempt ${attempts}`,
    })),
  ];
  if (event.waitingSince) {
    const names = event.waitingFor.map(printable).join(', ');
    steps.push({ at: event.waitingSince, text: `shelved until ${names} is up; no attempt counted` });
  }
  if (deadLetter) {
    steps.push({
      at: deadLetter.at,
      text: `dead letter: ${reasons[deadLetter.reason]} (${quantity(deadLetter.attempts, 'attempt')})`,
    });
    if (deadLetter.discardedAt && deadLetter.reason !== 'cancelled')
      steps.push({ at: deadLetter.discardedAt, text: 'discarded by an operator' });
  }
  return steps.sort((a, b) => a.at.getTime() - b.at.getTime());
}

const reasons: Record<NonNullable<EventDetails['deadLetter']>['reason'], string> = {
  exhausted: 'all attempts failed',
  rejected: 'rejected by a handler or destination',
  no_handler: 'no handler for its type',
  crashed: 'relays crashed while delivering it',
  forgotten: 'its only destination was forgotten',
  cancelled: 'cancelled by an operator',
};

function headerLines({ headers, headersJson }: EventDetails): string[] {
  const entries = Object.entries(headers);
  if (entries.length === 0) return ['none'];
  if (entries.some(([, value]) => typeof value !== 'string')) return jsonLines(headersJson);
  return entries.map(([name, value]) => `${printable(name)}: ${printable(String(value))}`);
}

function payloadLines({ payloadJson, payloadCut, payloadBytes }: EventDetails): string[] {
  if (!payloadCut) return jsonLines(payloadJson);
  if (payloadBytes === null) return ['too large to show: select it from outbox_events'];
  const rest = `… (${quantity(payloadBytes, 'byte')}; --json prints the first ${quantity(payloadCharactersMax, 'character')})`;
  return [...jsonLines(payloadJson).slice(0, -1), rest];
}

function jsonLines(json: string): string[] {
  const text = indentJson(json, jsonCharactersMax + 1);
  const shown = text.slice(0, jsonCharactersMax).split('\n').map(printable);
  return text.length > jsonCharactersMax ? [...shown, '… (truncated; --json prints all of it)'] : shown;
}

/**
 * The event for --json: payload and headers as PostgreSQL writes them. A payload that is too large is null, and `payloadJson`
 * has the beginning of its text.
 */
export function eventJson({ payloadJson, headersJson, ...event }: EventDetails): object {
  const payload = event.payloadCut ? { payload: null, payloadJson } : { payload: new JsonText(payloadJson) };
  return { ...event, ...payload, headers: new JsonText(headersJson) };
}

/** All events with this id or seq. In a partitioned log several events can have the same id. */
export async function findEvents(admin: OutboxAdmin, idOrSeq: string): Promise<EventDetails[]> {
  const first = await admin.find(idOrSeq);
  if (first === undefined) return [];
  const others = /^\d+$/.test(idOrSeq) ? [] : await Promise.all(first.sameId.map((seq) => admin.find(seq)));
  return [first, ...others.filter((event) => event !== undefined)];
}

/** The commands that apply to the event, each with what it does. */
function commandsFor({
  id: uuid,
  seq,
  sameId,
  status,
  unqueued,
  availableAt,
  deadLetter,
  waitingBehind,
  waitingFor,
}: EventDetails): [command: string, effect: string][] {
  const id = sameId.length > 0 ? seq : uuid;
  const cancel: [string, string] = [`events cancel ${id}`, 'never deliver it, and unblock its aggregate'];
  if (deadLetter) {
    const discard: [string, string] = [`dead discard ${id}`, 'never deliver it'];
    return [
      [`dead retry ${id}`, 'deliver it again, with attempts reset'],
      ...(deadLetter.discardedAt ? [] : [discard]),
    ];
  }
  if (waitingFor.length > 0) {
    return [
      ['destinations', 'show which destinations are down, and how many events wait for them'],
      ...waitingFor.map((name): [string, string] => [
        `destinations resume ${printable(shellOperand(name))}`,
        'end its pause, or try it now if it is down',
      ]),
      cancel,
    ];
  }
  if (unqueued) return [['requeue-unqueued', 'queue this event and all others that were never queued']];
  if (waitingBehind) return [[`events ${waitingBehind.id}`, 'show the event that must be delivered first'], cancel];
  if (status === 'PENDING' && availableAt)
    return [[`events make-due ${id}`, 'deliver it now, without waiting for its delay or backoff'], cancel];
  if (status === 'PROCESSING') return [cancel];
  return status === 'SENT' ? [[`replay ${id}`, 'deliver it again']] : [];
}

function paintStatus({ status, deadLetter }: EventDetails, { paint }: Output): string {
  if (deadLetter?.discardedAt) return paint.yellow(`${status} (discarded)`);
  if (status === 'FAILED') return paint.red('FAILED (dead letter)');
  return status === 'SENT' ? paint.green(status) : paint.yellow(status);
}
