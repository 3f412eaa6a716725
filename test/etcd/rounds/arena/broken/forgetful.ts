/**
 * A broken broker whose store sometimes acknowledges a write and drops it: the head moves, and the rows do not change.
 */
import { EtcdClient } from '../../../../../broker/store/etcd/client/etcd-client.ts'

const EVERY = 5
// eslint-disable-next-line @typescript-eslint/unbound-method -- called with the client as it is given
const { txn } = EtcdClient.prototype
let writes = 0

EtcdClient.prototype.txn = function (request, init) {
  const [head, ...rows] = request.success
  if (head !== undefined && rows.length > 0 && init.action.startsWith('write of')) writes += 1
  const isForgotten = writes % EVERY === EVERY - 1 && head !== undefined
  return txn.call(this, isForgotten ? { ...request, success: [head] } : request, init)
}
