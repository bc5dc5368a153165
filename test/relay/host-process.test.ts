import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { describe, expect, onTestFinished, test } from 'vitest';
import { isProcessGone, ownProcess } from '../../src/relay/lease/host-process.ts';
import { until } from '../support/wait.ts';

const own = ownProcess();
const known = (pid: number, processId = own.processId ?? null) => ({ pid, hostId: own.hostId ?? null, processId });
const isGone = (pid: number, processId?: string) => isProcessGone(known(pid, processId), own.hostId);

describe.runIf(process.platform === 'linux')('a process', () => {
  test('that runs is not gone', () => {
    expect(own).toEqual({
      hostId: expect.stringMatching(/^[0-9a-f-]{36} pid:\[\d+\] /),
      processId: expect.stringMatching(/^\d+$/),
    });
    expect(isGone(process.pid)).toBe(false);
  });

  test('that has ended is gone, and so is one whose pid belongs to another', async () => {
    const child = spawn('true');
    await once(child, 'exit');
    expect(isGone(child.pid ?? 0)).toBe(true);
    expect(isGone(process.pid, '1')).toBe(true);
  });

  test('that has ended and was not waited for is gone', async () => {
    const parent = spawn('sh', ['-c', 'sh -c "echo \\$\\$" & exec sleep 60']);
    onTestFinished(() => void parent.kill('SIGKILL'));
    const [line] = (await once(createInterface({ input: parent.stdout }), 'line')) as [string];
    await until(() => isGone(Number(line)), { what: 'it is a zombie' });
  });

  test('of another host, boot or pid namespace is never judged, nor one that is not known', async () => {
    const child = spawn('true');
    await once(child, 'exit');
    const gone = known(child.pid ?? 0);
    expect(isProcessGone(gone, own.hostId)).toBe(true);
    expect(isProcessGone({ ...gone, hostId: `${own.hostId} else` }, own.hostId)).toBe(false);
    expect(isProcessGone({ ...gone, hostId: null }, own.hostId)).toBe(false);
    expect(isProcessGone({ ...gone, processId: null }, own.hostId)).toBe(false);
    expect(isProcessGone({ ...gone, hostId: null }, undefined)).toBe(false);
  });
});
