/** Reads and writes /proc/sys of this network namespace. */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { KernelError } from '../kernel.ts'
import { type Sysctl, sysctlParts } from './sysctl.ts'

export class ProcSysctl implements Sysctl {
  readonly #root: string
  readonly #net: string

  /** `root` is /proc/sys except in tests. `net` is the folder for names below net/, by default `<root>/net`. */
  constructor(root = '/proc/sys', net = join(root, 'net')) {
    this.#root = root
    this.#net = net
  }

  async read(name: string): Promise<string | undefined> {
    const path = this.#path(name)
    try {
      return (await readFile(path, 'utf8')).trimEnd()
    } catch (error) {
      const code = codeOf(error)
      if (code === 'ENOENT' || code === 'ENOTDIR') return undefined
      throw classify(`sysctl ${name}`, code, error)
    }
  }

  async write(name: string, value: string): Promise<void> {
    const operation = `sysctl -w ${name}=${value}`
    if (!/^[\w. \t-]+$/.test(value)) throw new KernelError('EINVAL', `sysctl -w ${name}`, 'not a value')
    const path = this.#path(name)
    try {
      // r+ never creates a file.
      await writeFile(path, `${value}\n`, { flag: 'r+' })
    } catch (error) {
      throw classify(operation, codeOf(error), error)
    }
  }

  #path(name: string): string {
    const [first, ...rest] = sysctlParts(name)
    return first === 'net' ? join(this.#net, ...rest) : join(this.#root, first ?? '', ...rest)
  }
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : ''
}

function classify(operation: string, code: string, cause: unknown): KernelError {
  if (code === 'ENOENT' || code === 'ENOTDIR') return new KernelError('ENOENT', operation, 'no such setting', { cause })
  if (code === 'EACCES' || code === 'EPERM' || code === 'EROFS') {
    return new KernelError('EPERM', operation, code === 'EROFS' ? '/proc/sys is read-only here' : 'not permitted', {
      cause,
    })
  }
  if (code === 'EINVAL' || code === 'ERANGE')
    return new KernelError('EINVAL', operation, 'the kernel refuses the value', { cause })
  return new KernelError('UNKNOWN', operation, cause instanceof Error ? cause.message : 'failed', { cause })
}
