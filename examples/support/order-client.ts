import { SoldOut } from '../order-service.ts';
import type { Orders } from './story.ts';

/** A client of an order service over HTTP. */
export class OrderClient implements Orders {
  readonly #url: string;

  constructor(url: string) {
    this.#url = url;
  }

  async place(orderId: string, total: number): Promise<void> {
    await this.#post('/orders', { id: orderId, total });
  }

  async pay(orderId: string): Promise<void> {
    await this.#post(`/orders/${orderId}/payment`, {});
  }

  async #post(path: string, body: unknown): Promise<void> {
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(this.#url + path, { method: 'POST', headers, body: JSON.stringify(body) });
    const text = await response.text();
    if (response.status === 409) throw new SoldOut();
    if (!response.ok) throw new Error(`POST ${path} was answered with ${response.status}: ${text}`);
  }
}
