/** The XFRM policies of this network namespace, over netlink. */
import { RtnetlinkSocket } from '../route/route.ts'
import {
  type ForwardPolicies,
  type ForwardPolicy,
  type ListedPolicy,
  type PolicyListing,
  checkPolicy,
  formatPolicy,
  formatPolicyDeletion,
  formatPolicyUpdate,
} from './forward-policies.ts'
import {
  DELETE_POLICY,
  GET_POLICY,
  NEW_POLICY,
  UPDATE_POLICY,
  decodeEarlier,
  decodePolicy,
  encodeDelete,
  encodeList,
  encodeNew,
} from './xfrm-codec.ts'

const LIST = 'ip xfrm policy list dir fwd'

export class XfrmPolicies implements ForwardPolicies {
  readonly #timeoutMs: number | undefined
  /** Opened with the first request, because a kernel may not have the protocol. */
  #socket: RtnetlinkSocket | undefined

  constructor({ timeoutMs }: { readonly timeoutMs?: number } = {}) {
    this.#timeoutMs = timeoutMs
  }

  async list(signal?: AbortSignal): Promise<PolicyListing> {
    const messages = await this.#open().dump({ type: GET_POLICY, body: encodeList(), operation: LIST, signal })
    const bodies = messages.flatMap(({ type, data }) => (type === NEW_POLICY ? [data] : []))
    return {
      ours: bodies.flatMap((data) => decodePolicy(data) ?? []),
      earlier: bodies.flatMap((data) => decodeEarlier(data) ?? []),
    }
  }

  async add(policy: ForwardPolicy, signal?: AbortSignal): Promise<void> {
    checkPolicy(policy)
    const operation = formatPolicy(policy)
    await this.#open().request({ type: NEW_POLICY, body: encodeNew(policy), operation, signal })
  }

  async refresh(policy: ForwardPolicy, signal?: AbortSignal): Promise<void> {
    checkPolicy(policy)
    const operation = formatPolicyUpdate(policy)
    await this.#open().request({ type: UPDATE_POLICY, body: encodeNew(policy), operation, signal })
  }

  async remove(policy: ListedPolicy, signal?: AbortSignal): Promise<void> {
    const operation = formatPolicyDeletion(policy)
    await this.#open().request({ type: DELETE_POLICY, body: encodeDelete(policy), operation, signal })
  }

  close(): void {
    this.#socket?.close()
    this.#socket = undefined
  }

  #open(): RtnetlinkSocket {
    return (this.#socket ??= new RtnetlinkSocket(this.#timeoutMs, 'xfrm'))
  }
}
