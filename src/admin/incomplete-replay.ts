import { PostcommitError } from '../errors.ts';
import { quantity } from '../format.ts';
import { causeText } from '../telemetry/error-text.ts';

/**
 * A replay failed after some of its chunks. `cause` is the error, `next` where it continues: starting over would replay events that have
 * been delivered since.
 */
export class IncompleteReplay extends PostcommitError {
  readonly next: string;
  readonly #count: number;

  constructor(cause: unknown, count: number, next: string) {
    super('POSTCOMMIT_E_REPLAY_INCOMPLETE', detailOf(count, next, `The error: ${causeText(cause)}`), { cause });
    this.next = next;
    this.#count = count;
  }

  /** The message with another sentence in place of the text of the cause, for readers who may not see that. */
  messageWith(sentence: string): string {
    return new PostcommitError(this.code, detailOf(this.#count, this.next, sentence)).message;
  }
}

function detailOf(count: number, next: string, sentence: string): string {
  return `${quantity(count, 'event')} replayed, continue after ${next}. ${sentence}`;
}
