/** XFRM policies in memory, of ours only. */
import { KernelError } from '../kernel.ts'
import {
  type ForwardPolicies,
  type ForwardPolicy,
  type ListedPolicy,
  checkPolicy,
  formatPolicy,
  formatPolicyDeletion,
} from '../xfrm/xfrm.ts'

export class FakeForwardPolicies implements ForwardPolicies {
  readonly #policies = new Map<number, ListedPolicy>()
  #lastIndex = 0
  /** If set, all calls throw this error. */
  failure: KernelError | undefined

  list(): Promise<readonly ListedPolicy[]> {
    return this.#act(() => [...this.#policies.values()])
  }

  add(policy: ForwardPolicy): Promise<void> {
    return this.#act(() => {
      checkPolicy(policy)
      const same = [...this.#policies.values()].some(
        ({ source, destination, mark, outputIndex }) =>
          source === policy.source &&
          destination === policy.destination &&
          mark === policy.mark &&
          outputIndex === policy.outputIndex,
      )
      if (same) throw new KernelError('EEXIST', formatPolicy(policy), 'it exists')
      // The kernel's numbers of this direction have the rest 2 modulo 8.
      this.#lastIndex += 8
      const index = this.#lastIndex + 2
      this.#policies.set(index, { ...policy, index })
    })
  }

  remove(policy: ListedPolicy): Promise<void> {
    return this.#act(() => {
      const found = this.#policies.get(policy.index)
      if (found === undefined || found.mark !== policy.mark)
        throw new KernelError('ENOENT', formatPolicyDeletion(policy), 'there is none')
      this.#policies.delete(policy.index)
    })
  }

  async #act<T>(work: () => T): Promise<T> {
    await Promise.resolve()
    if (this.failure !== undefined) throw this.failure
    return work()
  }
}
