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
    const { db, schema, token, payloads } = this.#options;
    const release = () => done({ kind: 'released', done: event.done });
    beginTrial(db, schema, event.seq, token()).then((isOurs) => {
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
