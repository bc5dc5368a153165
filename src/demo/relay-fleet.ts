import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { RelayAssignment, RelayMessage } from './relay-process.ts';

/** What the parent process knows about a relay process. */
export interface FleetMember {
  readonly name: string;
  readonly pid: number;
  state: 'starting' | 'delivering' | 'killed' | 'stopping' | 'stopped';
  /** Its fencing token in the database. */
  token: string;
  delivered: number;
  failed: number;
  deadLettered: number;
  inFlight: number;
  /** Events that it took over from a lost relay. */
  takenOver: number;
}

/** How long a relay may take to stop before it is killed. */
const stopTimeoutMs = 5_000;
const startTimeoutMs = 30_000;
const errorCharactersMax = 4_096;

// The source or the built file, like this module; fork passes on the arguments of the loader.
const relayProcess = fileURLToPath(import.meta.url).replace(/relay-fleet(\.[jt]s)$/, 'relay-process$1');

/** Starts, watches, kills and stops the demo's relay processes. */
export class RelayFleet {
  readonly #assignment: Omit<RelayAssignment, 'name'>;
  readonly #onLatencies: (latenciesMs: number[]) => void;
  readonly #onFailure: (error: Error) => void;
  readonly #children = new Map<FleetMember, ChildProcess>();

  constructor(options: {
    assignment: Omit<RelayAssignment, 'name'>;
    onLatencies: (latenciesMs: number[]) => void;
    /** A relay ended unexpectedly. */
    onFailure: (error: Error) => void;
  }) {
    this.#assignment = options.assignment;
    this.#onLatencies = options.onLatencies;
    this.#onFailure = options.onFailure;
  }

  /** All relays in the order of their start, including ended ones. */
  get members(): readonly FleetMember[] {
    return [...this.#children.keys()];
  }

  /** Starts a relay. Resolves when it is running. */
  async start(name: string, signal: AbortSignal): Promise<FleetMember> {
    signal.throwIfAborted();
    const child = fork(relayProcess, { stdio: ['ignore', 'ignore', 'pipe', 'ipc'] });
    const counters = { delivered: 0, failed: 0, deadLettered: 0, inFlight: 0, takenOver: 0 };
    const member: FleetMember = { name, pid: child.pid ?? -1, state: 'starting', token: '', ...counters };
    this.#children.set(member, child);
    const started = new AbortController();
    this.#watch(member, child, () => started.abort());
    child.send({ name, ...this.#assignment } satisfies RelayAssignment, () => {}); // If it fails, 'close' reports it.
    await Promise.race([
      once(started.signal, 'abort', { signal }),
      sleep(startTimeoutMs, undefined, { signal: AbortSignal.any([signal, started.signal]) }).then(
        () => this.#onFailure(new Error(`${name} was not ready after ${startTimeoutMs} ms`)),
        () => {},
      ),
    ]);
    signal.throwIfAborted();
    return member;
  }

  /** Kills a relay like a crash: it cannot release its events. */
  kill(member: FleetMember): void {
    member.state = 'killed';
    member.inFlight = 0;
    this.#children.get(member)?.kill('SIGKILL');
  }

  /** Stops all relays. Resolves when every process has ended. Never fails. */
  async stop(): Promise<void> {
    await Promise.all([...this.#children].map(([member, child]) => stopMember(member, child)));
  }

  #watch(member: FleetMember, child: ChildProcess, onStarted: () => void): void {
    let stderr = '';
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      stderr = (stderr + text).slice(-errorCharactersMax);
    });
    child.on('message', (message: RelayMessage) => {
      if (message.kind === 'started') {
        member.token = message.token;
        if (member.state === 'starting') member.state = 'delivering';
        onStarted();
      } else if (message.kind === 'takenOver') {
        member.takenOver += message.count;
      } else if (message.kind === 'failed') {
        stderr = message.error;
      } else {
        const { delivered, failed, deadLettered, inFlight, latenciesMs } = message;
        Object.assign(member, { delivered, failed, deadLettered, inFlight: member.state === 'killed' ? 0 : inFlight });
        this.#onLatencies(latenciesMs);
      }
    });
    child.once('error', (error) => this.#onFailure(error));
    child.once('close', (code, signal) => {
      const expected = member.state === 'killed' || member.state === 'stopping';
      if (member.state === 'stopping') member.state = 'stopped';
      if (!expected) this.#onFailure(new Error(`${member.name} ended with ${code ?? signal}. ${stderr.trim()}`));
    });
  }
}

async function stopMember(member: FleetMember, child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
  const exited = once(child, 'exit');
  if (member.state === 'starting') {
    // It may not listen for messages yet, and has claimed nothing.
    member.state = 'stopping';
    child.kill('SIGKILL');
  } else if (member.state !== 'killed') {
    member.state = 'stopping';
    child.send('stop', () => {});
  }
  const force = setTimeout(() => child.kill('SIGKILL'), stopTimeoutMs);
  await exited;
  clearTimeout(force);
}
