import { integer, pgTable, text } from 'drizzle-orm/pg-core';

export const orders = pgTable('orders', {
  id: text().primaryKey(),
  total: integer().notNull(),
  status: text({ enum: ['placed', 'paid'] }).notNull(),
});

/** One row; a check constraint keeps `pieces` from falling below 0. */
export const stock = pgTable('stock', { pieces: integer().notNull() });
