import type { AnsweredPartition } from './answer.ts';
import { type KafkaRecord, RecordRefused } from './port.ts';

/** The part of a broker's answer to a Produce request that is used here. `@platformatic/kafka` puts it into its errors. */
interface ProduceResponse {
  readonly responses: readonly { readonly name: string; readonly partitionResponses: readonly PartitionResponse[] }[];
}

interface PartitionResponse {
  readonly index: number;
  readonly errorCode: number;
  readonly errorMessage?: string | null;
  readonly recordErrors?: readonly RecordError[];
}

interface RecordError {
  /** The record's position among those of its partition. */
  readonly batchIndex: number;
  readonly batchIndexErrorMessage?: string | null;
}

const depthMax = 5;

/**
 * Which of the records were not stored, and why, from the error of a failed send; all others were stored. `undefined`
 * if no broker answered, so that nothing is known of any record.
 */
export function refusedRecords(error: unknown, records: readonly KafkaRecord[]): Map<KafkaRecord, unknown> | undefined {
  const { produced } = error as { produced?: { offsets?: readonly AnsweredPartition[] } };
  const stored = new Set(produced?.offsets?.map(({ topic, partition }) => placeOf(topic, partition)));
  const refusals = new Map<string, PartitionResponse>();
  // Attempts in their order: a partition that was stored by one of them is recognised by the next, and not stored again.
  for (const { responses } of responsesIn(error)) {
    for (const { name, partitionResponses } of responses) {
      for (const response of partitionResponses) {
        const place = placeOf(name, response.index);
        if (response.errorCode === 0) stored.add(place);
        else refusals.set(place, response);
      }
    }
  }
  if (stored.size === 0 && refusals.size === 0) return undefined;
  const failed = new Map<KafkaRecord, unknown>();
  const positions = new Map<string, number>();
  for (const record of records) {
    const place = placeOf(record.topic, record.partition);
    const position = positions.get(place) ?? 0;
    positions.set(place, position + 1);
    if (stored.has(place)) continue;
    const refusal = refusals.get(place);
    failed.set(record, refusal === undefined ? error : errorOf(refusal, position));
  }
  return failed;
}

function errorOf({ errorCode, errorMessage, recordErrors = [] }: PartitionResponse, position: number): Error {
  const words = errorMessage ?? `The broker answered with error ${errorCode}.`;
  const recordError = recordErrors.find(({ batchIndex }) => batchIndex === position);
  if (recordError) return new RecordRefused(recordError.batchIndexErrorMessage ?? words, errorCode);
  return Object.assign(new Error(words), { apiCode: errorCode });
}

function* responsesIn(error: unknown, depth = 0): Generator<ProduceResponse> {
  const { response, errors } = (error ?? {}) as { response?: Partial<ProduceResponse>; errors?: unknown };
  if (Array.isArray(response?.responses)) yield response as ProduceResponse;
  if (!Array.isArray(errors) || depth === depthMax) return;
  for (const inner of errors) yield* responsesIn(inner, depth + 1);
}

function placeOf(topic: string, partition: number | undefined): string {
  return `${topic}/${partition}`;
}
