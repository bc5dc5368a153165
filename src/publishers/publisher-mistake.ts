import type { Publisher, PublisherCapabilities } from './publisher.ts';

type Method = 'connect' | 'publish' | 'health' | 'close';

const methods: readonly Method[] = ['connect', 'publish', 'health', 'close'];

interface Rule {
  is: (value: unknown) => boolean;
  expected: string;
}

const limit: Rule = {
  is: (value) => Number.isSafeInteger(value) && (value as number) > 0,
  expected: 'a whole number from 1 on',
};
const flag: Rule = { is: (value) => typeof value === 'boolean', expected: 'true or false' };

const rules: Readonly<Record<keyof Required<PublisherCapabilities>, Rule>> = {
  batchSizeMax: limit,
  batchBytesMax: limit,
  batchesInFlightMax: limit,
  ordered: flag,
  keyRuns: flag,
  deduplicates: flag,
  answerMsMax: {
    is: (value) => value === undefined || limit.is(value),
    expected: 'a whole number from 1 on, or left out',
  },
  cloudEventsPrefix: {
    is: (value) => typeof value === 'string' && /^[A-Za-z][\w:.-]*$/.test(value),
    expected: "the beginning of a header's name, e.g. 'ce_'",
  },
};

/** Whether the value looks like a publisher, complete or not. */
export function resemblesPublisher(value: unknown): value is Partial<Publisher> {
  if (typeof value !== 'object' || value === null) return false;
  return methods.some((method) => typeof (value as Partial<Publisher>)[method] === 'function');
}

/** The first member that breaks the contract, and what is expected of it; `undefined` when all keep it. */
export function publisherMistake(publisher: Partial<Publisher>): string | undefined {
  for (const method of methods) {
    if (typeof publisher[method] !== 'function') return mistake(`${method}()`, 'a method', publisher[method]);
  }
  const { kind, capabilities, parts } = publisher;
  if (typeof kind !== 'string' || kind === '') return mistake('kind', 'a text that is not empty', kind);
  if (typeof capabilities !== 'object' || capabilities === null) {
    return mistake('capabilities', `an object with ${Object.keys(rules).join(', ')}`, capabilities);
  }
  for (const [name, { is, expected }] of Object.entries(rules)) {
    const value = capabilities[name as keyof PublisherCapabilities];
    if (!is(value)) return mistake(`capabilities.${name}`, expected, value);
  }
  if (parts !== undefined) {
    if (typeof parts?.of !== 'function') return mistake('parts.of()', 'a method', parts?.of);
    if (!limit.is(parts.inFlightMax)) return mistake('parts.inFlightMax', limit.expected, parts.inFlightMax);
  }
  return undefined;
}

function mistake(member: string, expected: string, value: unknown): string {
  return `${member} must be ${expected}. Got ${typeof value === 'string' ? JSON.stringify(value) : String(value)}.`;
}
