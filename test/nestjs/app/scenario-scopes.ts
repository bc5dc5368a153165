import { Inject, Injectable, Module, Scope, type Type } from '@nestjs/common';
import { NestFactory, REQUEST } from '@nestjs/core';
import { Pool, type PoolClient } from 'pg';
import { OnOutboxEvent, Outbox, type OutboxEventContext, PostcommitModule, Relay } from 'postcommit/nestjs';
import { fromPg } from 'postcommit/pg';
import { DatabaseModule } from './database.js';
import { Journal } from './journal.js';

@Injectable()
class Numbers {
  private last = 0;
  next() {
    return ++this.last;
  }
}

@Injectable({ scope: Scope.TRANSIENT })
class TransientHandler {
  private readonly number = this.numbers.next();

  constructor(
    private readonly journal: Journal,
    private readonly numbers: Numbers,
  ) {}

  @OnOutboxEvent('transient')
  handle() {
    this.journal.add({ what: 'called', type: 'transient', number: this.number });
  }
}

/** A class of request scope under the token 'HANDLER', in a module of its own. */
function handlerModule(from: string): Type {
  @Injectable({ scope: Scope.REQUEST })
  class Handler {
    constructor(private readonly journal: Journal) {}

    @OnOutboxEvent('token', { name: from })
    handle(_payload: unknown, { handler }: OutboxEventContext) {
      this.journal.add({ what: 'called', type: 'token', handler, from });
    }
  }

  @Module({ providers: [{ provide: 'HANDLER', useClass: Handler, scope: Scope.REQUEST }] })
  class HandlerModule {}
  return HandlerModule;
}

@Injectable({ scope: Scope.REQUEST })
class Request {
  constructor(@Inject(REQUEST) readonly event: { type: string }) {}
}

class FactoryMade {
  constructor(
    private readonly journal: Journal,
    private readonly request: Request,
  ) {}

  @OnOutboxEvent('factory')
  handle() {
    this.journal.add({ what: 'called', type: 'factory', of: this.request.event.type });
  }
}

class Hidden extends FactoryMade {
  @OnOutboxEvent('hidden')
  override handle() {}
}

const symbol = Symbol('handle');

@Injectable()
class SymbolHandler {
  constructor(private readonly journal: Journal) {}

  @OnOutboxEvent('symbol')
  [symbol](_payload: unknown, { handler }: OutboxEventContext) {
    this.journal.add({ what: 'called', type: 'symbol', handler });
  }
}

const made = { useFactory: (journal: Journal, request: Request) => new FactoryMade(journal, request) };
const hidden = { useFactory: (journal: Journal, request: Request) => new Hidden(journal, request) };
const inject = [Journal, Request];

@Module({
  imports: [
    DatabaseModule,
    PostcommitModule.forRootAsync({
      inject: [Pool, Journal],
      useFactory: (pool: Pool, journal: Journal) => ({
        db: fromPg(pool),
        relay: {
          logger: {
            debug() {},
            info() {},
            warn({ handlers, factories }: object & { handlers?: unknown; factories?: unknown }) {
              if (handlers !== undefined || factories !== undefined)
                journal.add({ what: 'warned', handlers, factories });
            },
            error() {},
          },
        },
      }),
    }),
    handlerModule('one'),
    handlerModule('two'),
  ],
  providers: [
    Numbers,
    Request,
    SymbolHandler,
    TransientHandler,
    { provide: FactoryMade, inject, ...made },
    { provide: 'HIDDEN', inject, ...hidden },
  ],
})
class AppModule {}

/** Handlers that Nest makes for each event, and those that are hard to find. */
export async function scopes(): Promise<void> {
  const app = await NestFactory.createApplicationContext(AppModule, { logger: ['error'], abortOnError: false });
  const outbox: Outbox<PoolClient> = app.get(Outbox);
  const types = ['transient', 'transient', 'token', 'factory', 'symbol'];
  let left = types.length;
  const delivered = new Promise<void>((resolve) => {
    app.get(Relay).on('delivered', () => {
      if (--left === 0) resolve();
    });
  });
  const events = types.map((type) => ({ type, aggregate: ['handler', type] as const, payload: {} }));
  await outbox.transaction([], events);
  await delivered;
  await app.close();
}
