/** New keys, here and at far ends. */
export { startRenewal } from './rotation-loop.ts'
