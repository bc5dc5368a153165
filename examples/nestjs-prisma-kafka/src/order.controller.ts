import { Body, Controller, HttpCode, Param, Post } from '@nestjs/common';
import { OrderService } from './order.service.js';

@Controller('orders')
export class OrderController {
  constructor(private readonly orders: OrderService) {}

  @Post()
  async place(@Body() { id, total }: { id: string; total: number }): Promise<{ id: string }> {
    await this.orders.place(id, total);
    return { id };
  }

  @Post(':id/payment')
  @HttpCode(204)
  async pay(@Param('id') id: string): Promise<void> {
    await this.orders.pay(id);
  }
}
