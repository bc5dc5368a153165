import type { Executor } from '../../database/executor.ts';
import { beginTrial } from '../../outbox/delivering/begin-trial.ts';
import type { Deliverer } from '../deliver/deliverer.ts';
import type { Planner } from '../deliver/planner.ts';
import type { ClaimedEvent } from '../event/claimed-event.ts';
import type { EventOutcome } from '../event/outcome.ts';
import type { PayloadLoader } from './payload-loader.ts';

export interface SuspectTrialsOptions {
  schema: string;
  db: Executor;
  token: () => string;
  /** `written` resolves when the results of all events that ended before are durable. */
  settler: { written(): Promise<void> };
  payloads: Pick<PayloadLoader, 'load'>;
  planner: Planner;
  deliverer: Deliverer;
}

/** Delivers prime suspects (suspicion.ts). The dispatcher makes sure that nothing else is in flight. */
export class SuspectTrials {
  readonly #options: SuspectTrialsOptions;

  constructor(options: SuspectTrialsOptions) {
    this.#options = options;
  }

  /** Counts the trial, loads the payload, plans and delivers: each of the last three may be what ends the process. */
  deliver(event: ClaimedEvent, done: (outcome: EventOutcome) => void): void {
    const { db, schema, token, settler, payloads } = this.#options;
    const release = () => done({ kind: 'released', done: event.done });
    // Another suspect that was just delivered would be blamed as well, if this one ended the process before its result is written.
    const begin = async () => {
      await settler.written();
      return beginTrial(db, schema, event.seq, token());
    };
    begin().then((isOurs) => {
      if (!isOurs) release();
      else if (event.payloadJson !== undefined || event.id === '') this.#deliverLoaded(event, done);
      else payloads.load(event, (failure) => (failure ? done(failure) : this.#deliverLoaded(event, done)));
    }, release);
  }

  #deliverLoaded(event: ClaimedEvent, done: (outcome: EventOutcome) => void): void {
    const { planner, deliverer } = this.#options;
    planner.plan(event);
    deliverer.deliver(event, done);
  }
}
