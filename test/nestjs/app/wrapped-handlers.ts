// Compiled with both kinds of decorators: without constructor injection, as standard decorators tell no types.
import { Injectable, Scope, type Type } from '@nestjs/common';
import { OnOutboxEvent } from 'postcommit/nestjs';

type Method = (...args: unknown[]) => unknown;
export type Call = (handler: string, ...wrappers: string[]) => void;

/** Runs before the method, as `@Transactional()` of several packages does. Fits both kinds of decorators. */
function Wrap(name: string): HandlerWrapper {
  const wrap = (method: Method) =>
    function (this: { wrappers?: string[] }, ...args: unknown[]) {
      this.wrappers = [...(this.wrappers ?? []), name];
      return method.apply(this, args);
    };
  return (target, _keyOrContext, descriptor) => {
    if (descriptor === undefined) return wrap(target);
    descriptor.value = wrap(descriptor.value);
  };
}

/** Makes a getter of the method, as packages that bind methods do. Only the older decorators can. */
function Bound(): HandlerWrapper {
  return (_target, _key, descriptor) => {
    if (descriptor === undefined) return undefined;
    const method: Method = descriptor.value;
    return { configurable: true, get: () => method };
  };
}

// biome-ignore lint/suspicious/noExplicitAny: as both kinds of decorators have them.
type HandlerWrapper = (target: any, keyOrContext: any, descriptor?: any) => any;

const symbol = Symbol('symbol');

/** The classes are made by each call: a standard decorator looks then whether there is `Symbol.metadata`. */
export function insideClass(call: Call): Type {
  @Injectable()
  class Inside {
    wrappers?: string[];

    @OnOutboxEvent('wrapped')
    @Wrap('inner')
    inside() {
      call('inside', ...(this.wrappers ?? []));
    }
  }
  return Inside;
}

export function outsideClasses(call: Call): Type[] {
  @Injectable()
  class Outside {
    wrappers?: string[];

    @Wrap('outer')
    @OnOutboxEvent('wrapped')
    @Wrap('inner')
    outside() {
      call('outside', ...(this.wrappers ?? []));
    }

    @Wrap('outer')
    @OnOutboxEvent('wrapped')
    [symbol]() {
      call('symbol', ...(this.wrappers ?? []).slice(-1));
    }

    @Bound()
    @OnOutboxEvent('wrapped')
    bound() {
      call('bound');
    }
  }

  class Base {
    wrappers?: string[];

    @Wrap('outer')
    @OnOutboxEvent('wrapped', { name: 'inherited' })
    inherited() {
      call('inherited', ...(this.wrappers ?? []));
    }

    @Wrap('outer')
    @OnOutboxEvent('wrapped')
    overridden() {
      call('overridden');
    }
  }

  @Injectable()
  class Derived extends Base {
    override overridden() {
      call('not a handler');
    }
  }
  return [Outside, Derived];
}

export function scopedClass(call: Call): Type {
  @Injectable({ scope: Scope.REQUEST })
  class Scoped {
    wrappers?: string[];

    @Wrap('outer')
    @OnOutboxEvent('wrapped')
    scoped() {
      call('scoped', ...(this.wrappers ?? []));
    }
  }
  return Scoped;
}
