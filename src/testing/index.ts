export type { ConformanceCheck, PublisherHarness, ReceivedMessage } from './publisher-conformance.ts';
