import { PostcommitError } from '../errors.ts';
import type { JsonSchema } from './compatibility/json-schema.ts';
import { isObject } from './compatibility/json-schema.ts';
import { toDraft7 } from './draft-7.ts';

export interface SchemaRegistryOptions {
  /** How long one request may take, in milliseconds. Default 10,000. */
  timeoutMs?: number;
}

export interface RegistryVerdict {
  readonly isCompatible: boolean;
  /** The registry's own words. Not every registry gives reasons. */
  readonly messages: readonly string[];
}

interface Answer {
  readonly status: number;
  readonly body: unknown;
}

const contentType = 'application/vnd.schemaregistry.v1+json';

/** A client of a registry with Confluent's API: Confluent Schema Registry, Apicurio (`/apis/ccompat/v7`), Karapace, Redpanda. */
export class SchemaRegistry {
  /** Without a password, for messages. */
  readonly address: string;
  readonly #base: string;
  readonly #authorization: string | undefined;
  readonly #timeoutMs: number;

  constructor(url: string, { timeoutMs = 10_000 }: SchemaRegistryOptions = {}) {
    const parsed = URL.canParse(url) ? new URL(url) : undefined;
    if (parsed === undefined || !/^https?:$/.test(parsed.protocol)) {
      // Not repeated: it may have a password in it.
      throw new PostcommitError(
        'POSTCOMMIT_E_BAD_OPTION',
        'The URL of the registry must start with http:// or https://.',
      );
    }
    const { username, password } = parsed;
    if (username !== '' || password !== '') {
      this.#authorization = `Basic ${Buffer.from(credentials(username, password)).toString('base64')}`;
    }
    this.#base = `${parsed.origin}${parsed.pathname.replace(/\/+$/, '')}`;
    this.address = this.#base;
    this.#timeoutMs = timeoutMs;
  }

  /** The id of this schema in the subject, undefined where the subject does not have it. */
  async lookUp(subject: string, schema: JsonSchema): Promise<number | undefined> {
    const answer = await this.#post(`/subjects/${encodeURIComponent(subject)}`, schema);
    return answer.status === 404 ? undefined : this.#idOf(answer);
  }

  /** Adds the schema to the subject, where it is not there yet. Resolves with its id. */
  async register(subject: string, schema: JsonSchema): Promise<number> {
    return this.#idOf(await this.#post(`/subjects/${encodeURIComponent(subject)}/versions`, schema));
  }

  /** Whether the registry would take the schema as the next version of the subject, by the mode that the registry has for it. */
  async check(subject: string, schema: JsonSchema): Promise<RegistryVerdict> {
    const path = `/compatibility/subjects/${encodeURIComponent(subject)}/versions/latest?verbose=true`;
    const answer = await this.#post(path, schema);
    // A subject without a version has nothing to be incompatible with.
    if (answer.status === 404) return { isCompatible: true, messages: [] };
    const { body } = answer;
    if (answer.status !== 200 || !isObject(body) || typeof body.is_compatible !== 'boolean')
      throw this.#refused(answer);
    const messages = Array.isArray(body.messages) ? body.messages.map(String) : [];
    return { isCompatible: body.is_compatible, messages };
  }

  /** Rejects if the registry cannot be used at all: unreachable, overloaded, or it rejects the credentials. Asks about no subject. */
  async probe(): Promise<void> {
    const answer = await this.#send('/schemas/types', { method: 'GET' });
    if (answer.status === 401 || answer.status === 403) throw this.#refused(answer);
  }

  async #post(path: string, schema: JsonSchema): Promise<Answer> {
    const body = JSON.stringify({ schemaType: 'JSON', schema: JSON.stringify(toDraft7(schema)) });
    const answer = await this.#send(path, { method: 'POST', body });
    const isMissing = answer.status === 404 && isObject(answer.body) && 'error_code' in answer.body;
    if (answer.status !== 200 && !isMissing) throw this.#refused(answer);
    return answer;
  }

  async #send(path: string, request: { method: string; body?: string }): Promise<Answer> {
    const headers = {
      accept: `${contentType}, application/json`,
      'content-type': contentType,
      ...(this.#authorization !== undefined && { authorization: this.#authorization }),
    };
    let status: number;
    let text: string;
    try {
      const signal = AbortSignal.timeout(this.#timeoutMs);
      const response = await fetch(this.#base + path, { ...request, headers, signal });
      status = response.status;
      text = await response.text();
    } catch (cause) {
      throw new PostcommitError('POSTCOMMIT_E_REGISTRY_UNREACHABLE', `${this.address}: ${reasonOf(cause)}.`, { cause });
    }
    const answer = { status, body: parse(text) };
    if (status === 429 || status >= 500) {
      throw new PostcommitError('POSTCOMMIT_E_REGISTRY_UNREACHABLE', `${this.address}: ${describe(answer)}.`);
    }
    return answer;
  }

  #idOf(answer: Answer): number {
    const { body } = answer;
    if (answer.status !== 200 || !isObject(body) || typeof body.id !== 'number') throw this.#refused(answer);
    return body.id;
  }

  #refused(answer: Answer): PostcommitError {
    const { status, body } = answer;
    // Incompatible, invalid or too large. Anything else is not about the schema: credentials, another path or server.
    const isVerdict = [400, 409, 413, 422].includes(status) && isObject(body) && 'error_code' in body;
    const code = isVerdict ? 'POSTCOMMIT_E_SCHEMA_REFUSED' : 'POSTCOMMIT_E_REGISTRY_REFUSED';
    return new PostcommitError(code, `${this.address}: ${describe(answer)}.`);
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function describe({ status, body }: Answer): string {
  const said = isObject(body) && typeof body.message === 'string' ? body.message.slice(0, 500).replace(/\.$/, '') : '';
  if (said !== '') return `it answers with status ${status}: ${said}`;
  return status === 200 ? 'it does not answer like a schema registry' : `it answers with status ${status}`;
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error.name === 'TimeoutError') return 'no answer in time';
  const { cause } = error;
  const code = (cause as { code?: unknown } | undefined)?.code;
  return typeof code === 'string' ? code : cause instanceof Error && cause.message ? cause.message : error.message;
}

function credentials(username: string, password: string): string {
  try {
    return `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  } catch (cause) {
    throw new PostcommitError(
      'POSTCOMMIT_E_BAD_OPTION',
      'The user or the password in the URL of the registry has a % that begins no escape: write %25.',
      { cause },
    );
  }
}
