// The name that examples of the docs import.
export { OrderModule as AppModule } from './orders.js';
