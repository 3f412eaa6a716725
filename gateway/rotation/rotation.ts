/** Key rotation of this gateway and of far ends. */
export { startRenewal } from './rotation-loop.ts'
