import type { Executor } from '../../database/executor.ts';
import { beginTrial } from '../../outbox/delivering/begin-trial.ts';
import type { Deliverer, Outcome } from '../deliver/deliverer.ts';
import type { ClaimedEvent } from './dispatcher.ts';
import type { PayloadLoader } from './payload-loader.ts';

export interface SuspectTrialsOptions {
  schema: string;
  db: Executor;
  token: () => string;
  payloads: PayloadLoader;
  deliverer: Deliverer;
}

/** Delivers prime suspects (suspicion.ts). The dispatcher sees to it that nothing else is under way. */
export class SuspectTrials {
  readonly #options: SuspectTrialsOptions;

  constructor(options: SuspectTrialsOptions) {
    this.#options = options;
  }

  /** Counts the trial, loads the payload and delivers: each of the last two may be what ends the process. */
  deliver(event: ClaimedEvent, done: (outcome: Outcome) => void): void {
    const { db, schema, token, payloads, deliverer } = this.#options;
    const release = () => done({ kind: 'release', done: event.done });
    beginTrial(db, schema, event.seq, token()).then((isOurs) => {
      if (!isOurs) release();
      else if (event.payloadJson !== undefined || event.id === '') deliverer.deliver(event, done);
      else payloads.load(event, (failure) => (failure ? done(failure) : deliverer.deliver(event, done)));
    }, release);
  }
}
