/** One Secret in memory with the semantics of the API server: values are texts, and null removes a key. */
import type { SecretAccess, SecretChange, SecretContent } from '../../protocol/membership/secret-identity.ts'

export class MemorySecret implements SecretAccess {
  readonly place = 'Secret sealane-system/sealane-identity'
  content: SecretContent | undefined
  /** While it is set, every change fails with it. */
  failure: Error | undefined

  constructor(data?: Readonly<Record<string, string>>) {
    this.content = data === undefined ? undefined : { data, annotations: {} }
  }

  read(): Promise<SecretContent | undefined> {
    return Promise.resolve(this.content)
  }

  change({ data = {}, annotations = {} }: SecretChange): Promise<void> {
    if (this.failure !== undefined) return Promise.reject(this.failure)
    this.content = {
      data: merged(this.content?.data ?? {}, data),
      annotations: merged(this.content?.annotations ?? {}, annotations),
    }
    return Promise.resolve()
  }
}

function merged(
  before: Readonly<Record<string, string>>,
  change: Readonly<Record<string, string | null>>,
): Record<string, string> {
  const all = Object.entries({ ...before, ...change })
  return Object.fromEntries(all.filter((entry): entry is [string, string] => entry[1] !== null))
}
