// The part of Nest that this folder uses, for the compiler only: Nest itself is an optional peer and not installed here. The tests
// of test/nestjs compile this folder against the types of Nest 10, 11 and 12.

declare module '@nestjs/common' {
  // biome-ignore lint/suspicious/noExplicitAny: as Nest has it.
  export interface Type<T = any> {
    // biome-ignore lint/suspicious/noExplicitAny: as Nest has it.
    new (...args: any[]): T;
  }
  // biome-ignore lint/complexity/noBannedTypes: as Nest has it.
  export type InjectionToken = string | symbol | Type | Function;
  export interface FactoryProvider {
    provide: InjectionToken;
    // biome-ignore lint/suspicious/noExplicitAny: as Nest has it.
    useFactory: (...args: any[]) => unknown;
    inject?: (InjectionToken | { token: InjectionToken; optional: boolean })[];
  }
  export type Provider = Type | FactoryProvider | { provide: InjectionToken; useValue: unknown };
  export interface ModuleMetadata {
    imports?: (Type | DynamicModule | Promise<DynamicModule>)[];
    providers?: Provider[];
    exports?: InjectionToken[];
  }
  export interface DynamicModule extends ModuleMetadata {
    module: Type;
    global?: boolean;
  }
  export enum Scope {
    DEFAULT,
    TRANSIENT,
    REQUEST,
  }
  export function Module(metadata: ModuleMetadata): ClassDecorator;
  export class Logger {
    constructor(context: string);
    debug(message: string): void;
    log(message: string): void;
    warn(message: string): void;
    error(message: string): void;
  }
}

declare module '@nestjs/core' {
  import type { InjectionToken, Scope, Type } from '@nestjs/common';

  interface InstanceWrapper {
    readonly name: unknown;
    readonly token: InjectionToken;
    readonly isAlias: boolean;
    readonly isFactory: boolean;
    readonly isTransient: boolean;
    readonly scope?: Scope;
    // biome-ignore lint/suspicious/noExplicitAny: as Nest has it.
    readonly instance: any;
    // biome-ignore lint/complexity/noBannedTypes: as Nest has it.
    readonly metatype: Type | Function | null;
    readonly host?: { readonly name: string; getProviderByKey(token: unknown): InstanceWrapper };
    isDependencyTreeStatic(): boolean;
    getCtorMetadata(): InstanceWrapper[];
  }
  export class DiscoveryService {
    getProviders(): InstanceWrapper[];
    getControllers(): InstanceWrapper[];
  }
  export const DiscoveryModule: Type;
  export abstract class ModuleRef {
    // biome-ignore lint/suspicious/noExplicitAny: as Nest has it.
    get(token: any, options: { strict: boolean }): any;
    // biome-ignore lint/suspicious/noExplicitAny: as Nest has it.
    resolve(token: any, contextId: { id: number }, options: { strict: boolean }): Promise<any>;
    registerRequestByContextId(request: unknown, contextId: { id: number }): void;
  }
  export const ContextIdFactory: { create(): { id: number } };
  export class ModulesContainer extends Map<string, { readonly metatype: unknown; distance: number }> {}
}
