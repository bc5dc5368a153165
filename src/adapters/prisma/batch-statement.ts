import type { BatchedEvent } from '../../emit/outbox-database.ts';
import { PostcommitError } from '../../errors.ts';
import { codedPrismaError } from './errors.ts';

/** An event as an element of `prisma.$transaction([…])`. In the result of the batch it is the id of the event. */
export interface PrismaBatchStatement extends Promise<string> {
  readonly [Symbol.toStringTag]: 'PrismaPromise';
}

/** What Prisma calls on the elements of a batch. */
interface Batched extends PrismaBatchStatement {
  requestTransaction(batch: object): Promise<string>;
}

interface Root {
  // biome-ignore lint/suspicious/noExplicitAny: Prisma's own type of the values.
  $executeRawUnsafe(text: string, ...values: any[]): PromiseLike<number>;
}

/**
 * Prisma sends the elements of a batch together, once each of them has called its lock. One that rejects before fails the
 * batch, and nothing is sent. An element that is awaited by itself would commit by itself, so it is refused.
 */
export function batchStatement(prisma: Root, event: Promise<BatchedEvent>): PrismaBatchStatement {
  const alone = (): Promise<never> =>
    Promise.reject(
      new PostcommitError(
        'POSTCOMMIT_E_NOT_A_TRANSACTION',
        'outbox.statement() is an element of prisma.$transaction([…]), and must not be awaited by itself.',
      ),
    );
  const element: Batched = {
    [Symbol.toStringTag]: 'PrismaPromise',
    async requestTransaction(batch) {
      const { id, text, values, committed } = await event;
      const request = prisma.$executeRawUnsafe(text, ...values) as unknown as Batched;
      try {
        await request.requestTransaction(batch);
      } catch (error) {
        throw codedPrismaError(error);
      }
      committed();
      return id;
    },
    // biome-ignore lint/suspicious/noThenProperty: Prisma takes promises only.
    then: (onFulfilled, onRejected) => alone().then(onFulfilled, onRejected),
    catch: (onRejected) => alone().catch(onRejected),
    finally: (onFinally) => alone().finally(onFinally),
  };
  return element;
}
