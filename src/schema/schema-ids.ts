import { PostcommitError } from '../errors.ts';
import { Unavailable } from '../wire/unavailable.ts';
import type { JsonSchema } from './compatibility/json-schema.ts';
import type { SchemaRegistry } from './registry.ts';

/** A schema and the subject that it has an id in. */
export interface SubjectSchema {
  readonly subject: string;
  readonly type: string;
  readonly schema: JsonSchema;
}

export interface SchemaIdsOptions {
  registry: SchemaRegistry;
  /** Whether schemas that the subject lacks are registered. */
  register: boolean;
  idsMax: number;
}

/** How long a verdict of the registry holds, so that a backlog of events that it concerns does not ask for each. */
const refusalMs = 1_000;

/** The ids of schemas in a registry. An id never changes, so it is asked for once. */
export class SchemaIds {
  readonly #options: SchemaIdsOptions;
  /** By subject and type. The least recently used are first. */
  readonly #ids = new Map<string, number>();
  readonly #asking = new Map<string, Promise<number>>();
  readonly #refusals = new Map<string, { readonly error: unknown; readonly until: number }>();
  /** The registry could not be asked. */
  #isDown = false;

  constructor(options: SchemaIdsOptions) {
    this.#options = options;
  }

  /** The id, if it is known. */
  known(of: SubjectSchema): number | undefined {
    const name = nameOf(of);
    const id = this.#ids.get(name);
    if (id === undefined) return undefined;
    this.#ids.delete(name);
    this.#ids.set(name, id);
    return id;
  }

  /** Asks the registry, once for all callers that wait. Rejects with `Unavailable` if it cannot be asked. */
  ask(of: SubjectSchema): Promise<number> {
    const name = nameOf(of);
    const refusal = this.#refusals.get(name);
    if (refusal !== undefined && performance.now() < refusal.until) return Promise.reject(refusal.error);
    const asking = this.#asking.get(name) ?? this.#ask(of, name).finally(() => this.#asking.delete(name));
    this.#asking.set(name, asking);
    return asking;
  }

  /**
   * Rejects while the registry cannot be used, if it could not when it was last asked. About no subject: one that the registry refuses
   * to this user must not stop the others.
   */
  async health(): Promise<void> {
    if (!this.#isDown) return;
    await this.#options.registry.probe();
    this.#isDown = false;
  }

  async #ask(of: SubjectSchema, name: string): Promise<number> {
    const { registry, register, idsMax } = this.#options;
    try {
      const id = await (register ? registry.register(of.subject, of.schema) : registry.lookUp(of.subject, of.schema));
      this.#isDown = false;
      if (id === undefined) throw notRegistered(of, registry.address);
      this.#refusals.delete(name);
      this.#ids.set(name, id);
      evict(this.#ids, idsMax);
      return id;
    } catch (error) {
      // A registry that rejects the credentials, or another server, concerns every event alike.
      if (isOutage(error)) {
        this.#isDown = true;
        throw new Unavailable(`Schema registry ${(error as PostcommitError).detail}`, { cause: error });
      }
      this.#isDown = false;
      this.#refusals.set(name, { error, until: performance.now() + refusalMs });
      evict(this.#refusals, idsMax);
      throw error;
    }
  }
}

function nameOf({ subject, type }: SubjectSchema): string {
  return `${type}\n${subject}`;
}

function evict(map: Map<string, unknown>, max: number): void {
  const [oldest] = map.keys();
  if (map.size > max && oldest !== undefined) map.delete(oldest);
}

function isOutage(error: unknown): boolean {
  const { code } = error instanceof PostcommitError ? error : {};
  return code === 'POSTCOMMIT_E_REGISTRY_UNREACHABLE' || code === 'POSTCOMMIT_E_REGISTRY_REFUSED';
}

function notRegistered({ subject, type }: SubjectSchema, address: string): PostcommitError {
  const detail = `${address} has no schema of ${type} in the subject ${subject}.`;
  return new PostcommitError('POSTCOMMIT_E_SCHEMA_NOT_REGISTERED', detail);
}
