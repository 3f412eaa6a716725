/** A broker that writes without a look at what the others have written since: without the comparison of decision 57. */
import { EtcdClient } from '../../../../../broker/store/etcd/client/etcd-client.ts'

// eslint-disable-next-line @typescript-eslint/unbound-method -- called with the client as it is given
const { txn } = EtcdClient.prototype

EtcdClient.prototype.txn = function (request, init) {
  const isWrite = init.action.startsWith('write of')
  return txn.call(this, isWrite ? { ...request, compare: [] } : request, init)
}
