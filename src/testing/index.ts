export type { AdapterClient, AdapterHarness, ConformanceDatabase } from './adapter-conformance.ts';
export { adapterConformance } from './adapter-conformance.ts';
export type { ConformanceCheck, PublisherHarness, ReceivedMessage } from './publisher-conformance.ts';
export { publisherConformance } from './publisher-conformance.ts';
export { testMessage } from './test-message.ts';
