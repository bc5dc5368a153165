import type { ResolvedDestination } from './destination-options.ts';

/** Rejects when the broker does not answer, or the serializer cannot be used. */
export async function checkHealth(
  { publisher, serializer }: Pick<ResolvedDestination, 'publisher' | 'serializer'>,
  signal: AbortSignal,
): Promise<void> {
  await publisher.health(signal);
  await serializer.health?.(signal);
}
