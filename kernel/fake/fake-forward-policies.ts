/** XFRM policies in memory. */
import { KernelError } from '../kernel.ts'
import {
  type EarlierPolicy,
  type ForwardPolicies,
  type ForwardPolicy,
  type ListedPolicy,
  type PolicyListing,
  checkPolicy,
  formatPolicy,
  formatPolicyDeletion,
  formatPolicyUpdate,
} from '../xfrm/xfrm.ts'

export class FakeForwardPolicies implements ForwardPolicies {
  readonly #policies = new Map<number, ListedPolicy>()
  #lastIndex = 2
  /** The refreshed policies, as commands. */
  readonly refreshed: string[] = []
  /** Policies of other software. */
  earlier: readonly EarlierPolicy[] = []
  /** If set, all calls throw this error. */
  failure: KernelError | undefined

  list(): Promise<PolicyListing> {
    return this.#act(() => ({ ours: [...this.#policies.values()], earlier: this.earlier }))
  }

  add(policy: ForwardPolicy): Promise<void> {
    return this.#act(() => {
      checkPolicy(policy)
      if (this.#same(policy) !== undefined) throw new KernelError('EEXIST', formatPolicy(policy), 'it exists')
      this.#policies.set(this.#nextIndex(), { ...policy, index: this.#lastIndex })
    })
  }

  refresh(policy: ForwardPolicy): Promise<void> {
    return this.#act(() => {
      checkPolicy(policy)
      this.refreshed.push(formatPolicyUpdate(policy))
      const index = this.#same(policy)?.index ?? this.#nextIndex()
      this.#policies.set(index, { ...policy, index })
    })
  }

  /** The kernel's numbers of this direction have the rest 2 modulo 8. */
  #nextIndex(): number {
    this.#lastIndex += 8
    return this.#lastIndex
  }

  #same(policy: ForwardPolicy): ListedPolicy | undefined {
    return [...this.#policies.values()].find(
      ({ source, destination, mark, outputIndex }) =>
        source === policy.source &&
        destination === policy.destination &&
        mark === policy.mark &&
        outputIndex === policy.outputIndex,
    )
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
