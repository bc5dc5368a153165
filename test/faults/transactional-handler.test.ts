import { test } from 'vitest';
import { killRelays } from './transactional-kills.ts';

test('relays killed between effect and settle: effects exactly once, in order per key', () => killRelays(10));
