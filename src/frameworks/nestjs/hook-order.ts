import { Module } from '@nestjs/common';
import { ModulesContainer } from '@nestjs/core';

type Callback = () => Promise<void>;

/** Calls back in Nest's lifecycle. Nest calls the hooks of modules by their distance from the root module. */
abstract class Hooks {
  readonly bootstrap: Callback[] = [];
  readonly destroy: Callback[] = [];

  async onApplicationBootstrap(): Promise<void> {
    for (const callback of this.bootstrap) await callback();
  }

  async onModuleDestroy(): Promise<void> {
    await Promise.all(this.destroy.map((callback) => callback()));
  }
}

export class FirstHooks extends Hooks {}
export class LastHooks extends Hooks {}

// A relay starts when everything else has started, and stops before anything else stops: handlers in flight still need the pools
// that other modules close in onModuleDestroy. Nest calls the hooks of the module with the largest distance first. Nest 10 does so
// when it stops, too; later versions reverse the order then. So one of these two modules is the first to be stopped.
class FirstHooksModule {}
class LastHooksModule {}

Module({ providers: [hooksProvider(FirstHooks, FirstHooksModule, Number.MAX_SAFE_INTEGER)], exports: [FirstHooks] })(
  FirstHooksModule,
);
Module({ providers: [hooksProvider(LastHooks, LastHooksModule, -1)], exports: [LastHooks] })(LastHooksModule);

export const hookModules = [FirstHooksModule, LastHooksModule];

function hooksProvider(hooks: new () => Hooks, owner: unknown, distance: number) {
  return {
    provide: hooks,
    // Distances are known by now, and no hook has been called yet.
    useFactory: (modules: ModulesContainer) => {
      for (const module of modules.values()) if (module.metatype === owner) module.distance = distance;
      return new hooks();
    },
    inject: [ModulesContainer],
  };
}
