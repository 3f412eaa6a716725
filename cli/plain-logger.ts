/** The log of commands that end by themselves: warnings as plain lines on stderr, the rest unsaid. */
import type { Logger } from '../runtime/logging/logger.ts'
import type { Output } from './output.ts'

export class PlainLogger implements Logger {
  readonly #output: Output
  constructor(output: Output) {
    this.#output = output
  }
  debug(): void {
    // Of no use to somebody who asked one question.
  }
  info(): void {
    // As above.
  }
  warn(message: string): void {
    this.#output.remark(`sealane: ${message}\n`)
  }
  error(message: string): void {
    this.#output.remark(`sealane: ${message}\n`)
  }
  child(): this {
    return this
  }
}
