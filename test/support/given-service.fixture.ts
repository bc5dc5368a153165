import { expect, it } from 'vitest';
import { fileService } from './services.ts';

const sqs = fileService('sqs');

it('uses the server', () => {
  expect(sqs.url).toBe(process.env.SQS_ENDPOINT);
  expect(sqs.given).toBe(true);
  expect(sqs.disturbances).toEqual({});
  expect(() => sqs.own).toThrow(/no SQS.* of this file's own/);
});
