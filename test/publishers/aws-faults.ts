import { createServer, type IncomingMessage } from 'node:http';

/** A request as the test sees it: the action's name and its parameters, in the form of the service's protocol. */
export interface AwsCall {
  readonly action: string;
  readonly body: string;
}

/** What is answered in the service's place, or nothing to let it answer itself. */
export type AwsFault = (call: AwsCall) => { status: number; body: string } | undefined;

export interface AwsFaults {
  readonly url: string;
  /** Every call that came, by its action. */
  readonly actions: string[];
  /** `undefined`: no fault. */
  fault: AwsFault | undefined;
  close(): Promise<void>;
}

/** Stands before the real server and answers in its place with what AWS says when something is wrong. */
export async function startAwsFaults(target: string): Promise<AwsFaults> {
  const actions: string[] = [];
  const server = createServer(async (request, response) => {
    const body = await textOf(request);
    const action = actionOf(request, body);
    actions.push(action);
    const answer = faults.fault?.({ action, body });
    const json = 'x-amz-target' in request.headers;
    if (answer) {
      response.writeHead(answer.status, { 'content-type': json ? 'application/x-amz-json-1.0' : 'text/xml' });
      response.end(answer.body);
      return;
    }
    const names = ['content-type', 'x-amz-target', 'authorization', 'x-amz-date'];
    const headers = Object.fromEntries(names.flatMap((name) => [[name, String(request.headers[name] ?? '')]]));
    const forwarded = await fetch(target, { method: 'POST', headers, body }).catch(() => undefined);
    if (forwarded === undefined) {
      request.socket.destroy();
      return;
    }
    response.writeHead(forwarded.status, Object.fromEntries(forwarded.headers));
    response.end(await forwarded.text());
  });
  await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready));
  const address = server.address();
  const faults: AwsFaults = {
    url: `http://127.0.0.1:${typeof address === 'object' && address ? address.port : 0}`,
    actions,
    fault: undefined,
    async close() {
      server.closeAllConnections();
      await new Promise((closed) => server.close(closed));
    },
  };
  return faults;
}

/** An error in the protocol of SQS. */
export function sqsError(status: number, code: string, message = 'as the test wants it') {
  return { status, body: JSON.stringify({ __type: `com.amazonaws.sqs#${code}`, message }) };
}

/** An error in the protocol of SNS. */
export function snsError(status: number, code: string, message = 'as the test wants it') {
  const error = `<Error><Type>Sender</Type><Code>${code}</Code><Message>${message}</Message></Error>`;
  return { status, body: `<ErrorResponse>${error}<RequestId>0</RequestId></ErrorResponse>` };
}

async function textOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}

function actionOf({ headers }: IncomingMessage, body: string): string {
  const target = headers['x-amz-target'];
  return typeof target === 'string'
    ? target.replace('AmazonSQS.', '')
    : (new URLSearchParams(body).get('Action') ?? '');
}
