import { PostcommitError } from '../errors.ts';
import { unknownOption } from '../suggest.ts';

/**
 * What the dashboard hides. A path of the payload is names with dots: `customer.email`. `*` is any one name or index, and a path
 * that begins with `**.` matches at any depth: `**.password`.
 */
export interface RedactionRules {
  /** Paths of payloads, e.g. `['customer.email', 'cards.*.number', '**.password']`. Default: none. */
  payload?: readonly string[];
  /** Names of headers, in any case. Default: none. */
  headers?: readonly string[];
}

const hidden = '[redacted]';

type Path = readonly string[];

/** Replaces what the rules name by `[redacted]`, before anything leaves the process. */
export class Redaction {
  readonly #paths: readonly Path[];
  readonly #anywhere: readonly Path[];
  readonly #headers: ReadonlySet<string>;

  constructor(rules: RedactionRules = {}) {
    checkRules(rules);
    const paths = (rules.payload ?? []).map(toPath);
    this.#paths = paths.filter(([first]) => first !== '**');
    this.#anywhere = paths.filter(([first]) => first === '**').map((path) => path.slice(1));
    this.#headers = new Set((rules.headers ?? []).map((name) => name.toLowerCase()));
  }

  get hidesPayloads(): boolean {
    return this.#paths.length + this.#anywhere.length > 0;
  }

  hidesHeader(name: string): boolean {
    return this.#headers.has(name.toLowerCase());
  }

  headers(headers: Record<string, unknown>): Record<string, unknown> {
    const shown = Object.entries(headers).map(([name, value]) => [name, this.hidesHeader(name) ? hidden : value]);
    return Object.fromEntries(shown);
  }

  /** JSON text of a payload, and whether anything in it was hidden. Text that no rule changes is returned as it is. */
  payload(json: string): { json: string; redacted: boolean } {
    if (!this.hidesPayloads) return { json, redacted: false };
    const state = { redacted: false };
    const value = this.#apply(JSON.parse(json), this.#paths, state);
    return state.redacted ? { json: JSON.stringify(value), redacted: true } : { json, redacted: false };
  }

  #apply(value: unknown, paths: readonly Path[], state: { redacted: boolean }): unknown {
    if (typeof value !== 'object' || value === null) return value;
    const below = (name: string): { isHidden: boolean; rest: Path[] } => {
      const matching = [...paths, ...this.#anywhere].filter(([first]) => first === name || first === '*');
      const rest = matching.map((path) => path.slice(1));
      return { isHidden: rest.some((path) => path.length === 0), rest: rest.filter((path) => path.length > 0) };
    };
    const change = (name: string, each: unknown) => {
      const { isHidden, rest } = below(name);
      if (!isHidden) return this.#apply(each, rest, state);
      state.redacted = true;
      return hidden;
    };
    if (Array.isArray(value)) return value.map((each, index) => change(String(index), each));
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, change(name, each)]));
  }
}

/** Rules that are not understood would hide nothing. */
function checkRules(rules: RedactionRules): void {
  if (typeof rules !== 'object' || rules === null || Array.isArray(rules)) {
    const detail = "redact must be an object, e.g. { payload: ['customer.email'], headers: ['tenant'] }.";
    throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
  }
  const unknown = unknownOption(rules, ['payload', 'headers'], 'redact');
  if (unknown !== undefined) throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', unknown);
  for (const [name, list] of Object.entries(rules)) {
    if (list === undefined || Array.isArray(list)) continue;
    throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', `redact.${name} must be an array of texts.`);
  }
}

function toPath(rule: string): Path {
  const path = typeof rule === 'string' ? rule.split('.') : [];
  const isValid = path.length > 0 && path.every((name) => name !== '') && path.lastIndexOf('**') <= 0 && rule !== '**';
  if (!isValid) {
    throw new PostcommitError(
      'POSTCOMMIT_E_BAD_OPTION',
      `redact.payload has an invalid path: ${JSON.stringify(rule)}. A path is e.g. customer.email, cards.*.number or **.password.`,
    );
  }
  return path;
}
