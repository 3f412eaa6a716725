/** The common base of composed parts: the process, the kernel, and its inspection. */
export { withKernel } from './kernel.ts'
export { KERNEL_QUESTIONS, askKernel, lookAtHost, ownAddresses } from './look.ts'
export { withProcess } from './process.ts'
