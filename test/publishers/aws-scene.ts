import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';
import type { Message, Publisher } from '../../src/publishers/publisher.ts';
import { testMessage } from '../../src/testing/test-message.ts';
import { fileService } from '../support/services.ts';
import { type AwsFaults, startAwsFaults } from './aws-faults.ts';
import { testAccess } from './aws-queue.ts';

/**
 * For a file of tests: a server for SQS and SNS, a proxy before it that can answer instead (`faults`), and for each test a
 * publisher that talks to the proxy.
 */
export class AwsScene<Options extends object> {
  readonly server = fileService('sqs');
  readonly #create: (options: Options) => Publisher;
  #faults: AwsFaults | undefined;
  #publisher: Publisher | undefined;

  constructor(create: (options: Options) => Publisher) {
    this.#create = create;
    beforeAll(async () => {
      this.#faults = await startAwsFaults(this.server.url);
    });
    afterAll(() => this.#faults?.close());
    beforeEach(() => void this.open());
    afterEach(async () => {
      this.faults.fault = undefined;
      await this.publisher.close();
    });
  }

  get faults(): AwsFaults {
    if (!this.#faults) throw new Error('the proxy has not started');
    return this.#faults;
  }

  get publisher(): Publisher {
    if (!this.#publisher) throw new Error('there is no publisher');
    return this.#publisher;
  }

  /** Replaces the publisher of this test by one with these options. */
  open(options?: Options): Publisher {
    this.#publisher = this.#create({ ...testAccess, endpoint: this.faults.url, ...options } as unknown as Options);
    return this.#publisher;
  }
}

export const soon = (): AbortSignal => AbortSignal.timeout(10_000);

export const message = (topic: string, more: Partial<Message> = {}): Message =>
  testMessage({ topic, key: 'order:1', ...more });
