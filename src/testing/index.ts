export type { ConformanceCheck, PublisherHarness, ReceivedMessage } from './publisher-conformance.ts';
export { publisherConformance } from './publisher-conformance.ts';
export { testMessage } from './test-message.ts';
