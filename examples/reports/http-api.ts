import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { BadPeriod, toPeriod } from './period.ts';
import type { ReportService } from './report-service.ts';

export interface HttpApi {
  readonly url: string;
  stop(): Promise<void>;
}

interface Answer {
  status: number;
  body: object;
  headers?: Record<string, string>;
}

const bodyBytesMax = 10_000;
const onePath = /^\/reports\/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;

/** Serves the report service: `POST /reports`, and `GET` and `DELETE` of `/reports/:id`. Port 0: any free one. */
export async function startHttpApi(reports: ReportService, port = 0): Promise<HttpApi> {
  const server = createServer((request, response) => {
    answer(reports, request)
      .catch((error): Answer => {
        console.error(error);
        return { status: 500, body: { error: 'The report service failed. Try again.' } };
      })
      .then((result) => send(response, result))
      .catch(console.error);
  });
  await new Promise<void>((listening, failed) => {
    server.once('error', failed).listen(port, '127.0.0.1', listening);
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    stop: () => new Promise((stopped) => server.close(() => stopped())),
  };
}

async function answer(reports: ReportService, request: IncomingMessage): Promise<Answer> {
  const { method, url = '' } = request;
  const [path = ''] = url.split('?');
  if (path === '/reports') {
    if (method !== 'POST') return notAllowed('POST');
    return requestReport(reports, request);
  }
  const id = onePath.exec(path)?.[1];
  if (id === undefined) return noReport;
  if (method === 'GET') {
    const report = await reports.find(id);
    return report ? { status: 200, body: report } : noReport;
  }
  return method === 'DELETE' ? cancelReport(reports, id) : notAllowed('GET, DELETE');
}

/** 202: the task is saved. Where the caller sees what becomes of it is in `Location` and in the body. */
async function requestReport(reports: ReportService, request: IncomingMessage): Promise<Answer> {
  const text = await readBody(request);
  if (text === undefined) return bad(`The body must not have more than ${bodyBytesMax} bytes.`, 413);
  let given: unknown;
  try {
    given = JSON.parse(text);
  } catch (error) {
    return bad(`The body must be JSON: ${(error as Error).message}.`);
  }
  try {
    const report = await reports.request(toPeriod(given));
    const statusUrl = `/reports/${report.id}`;
    return { status: 202, body: { ...report, statusUrl }, headers: { location: statusUrl } };
  } catch (error) {
    if (error instanceof BadPeriod) return bad(error.message);
    throw error;
  }
}

async function cancelReport(reports: ReportService, id: string): Promise<Answer> {
  const before = await reports.find(id);
  if (before === undefined) return noReport;
  const { status } = before;
  const report = status === 'requested' || status === 'generating' ? await reports.cancel(id) : before;
  if (report?.status === 'cancelled') return { status: 200, body: report };
  return bad(`The report is ${report?.status} and cannot be cancelled.`, 409);
}

/** `undefined`: it is too long. */
async function readBody(request: IncomingMessage): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request) {
    bytes += chunk.length;
    if (bytes <= bodyBytesMax) chunks.push(chunk);
  }
  return bytes <= bodyBytesMax ? Buffer.concat(chunks).toString('utf8') : undefined;
}

function bad(error: string, status = 400): Answer {
  return { status, body: { error } };
}

function notAllowed(allow: string): Answer {
  return { ...bad(`Use ${allow}.`, 405), headers: { allow } };
}

const noReport: Answer = { status: 404, body: { error: 'There is no such report.' } };

function send(response: ServerResponse, { status, body, headers }: Answer): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(`${JSON.stringify(body)}\n`);
}
