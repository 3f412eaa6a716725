/** What composed parts stand on: the process, the kernel, what answers probes. */
export { withKernel } from './kernel.ts'
export { KERNEL_QUESTIONS, askKernel, lookAtHost, ownAddresses } from './look.ts'
export { withProcess } from './process.ts'
