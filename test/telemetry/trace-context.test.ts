import { context, propagation, ROOT_CONTEXT, trace } from '@opentelemetry/api';
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { withRemoteContext } from '../../src/index.ts';

const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
const exporter = new InMemorySpanExporter();
const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });

beforeAll(() => provider.register());
afterEach(() => {
  vi.restoreAllMocks();
  exporter.reset();
});
afterAll(async () => {
  await provider.shutdown();
  trace.disable();
  context.disable();
  propagation.disable();
});

const active = () => trace.getSpanContext(context.active());

test.each(['traceparent', 'Traceparent', 'TRACEPARENT'])(
  'the context of the header %s is active in the work',
  async (name) => {
    const seen = await withRemoteContext({ other: 'x', [name]: traceparent }, async () => {
      await new Promise((resolve) => setImmediate(resolve));
      return active();
    });
    expect(seen).toMatchObject({
      traceId: traceparent.split('-')[1],
      spanId: traceparent.split('-')[2],
      isRemote: true,
    });
    expect(active()).toBeUndefined();
  },
);

test.each([{}, { traceparent: 'nonsense' }, { traceparent: undefined }])(
  'without a context in %o the work runs as it is',
  async (headers) => {
    expect(await withRemoteContext(headers, active)).toBeUndefined();
    const outer = trace.getTracer('test').startSpan('outer');
    const seen = await context.with(trace.setSpan(ROOT_CONTEXT, outer), () => withRemoteContext(headers, active));
    expect(seen?.spanId).toBe(outer.spanContext().spanId);
  },
);

test('a span of the same trace stays active, one of another trace does not', async () => {
  const tracer = trace.getTracer('test');
  const remote = propagation.extract(ROOT_CONTEXT, { traceparent });
  const same = tracer.startSpan('server', {}, remote);
  const other = tracer.startSpan('other', { root: true });
  const under = (span: typeof same) =>
    context.with(trace.setSpan(ROOT_CONTEXT, span), () => withRemoteContext({ traceparent }, active));
  expect((await under(same))?.spanId).toBe(same.spanContext().spanId);
  expect((await under(other))?.spanId).toBe(traceparent.split('-')[2]);
});

test('what the work throws reaches the caller, and a propagator that throws costs the trace only', async () => {
  const fail = () => withRemoteContext({ traceparent }, () => Promise.reject(new Error('no stock')));
  await expect(fail()).rejects.toThrow('no stock');
  vi.spyOn(propagation, 'extract').mockImplementation(() => {
    throw new Error('broken propagator');
  });
  const work = vi.fn(() => 'done');
  expect(await withRemoteContext({ traceparent }, work)).toBe('done');
  expect(work).toHaveBeenCalledTimes(1);
});
