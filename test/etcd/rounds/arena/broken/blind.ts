/** A broken broker that writes without comparing what other brokers have written since, which decision 57 requires. */
import { EtcdClient } from '../../../../../broker/store/etcd/client/etcd-client.ts'

// eslint-disable-next-line @typescript-eslint/unbound-method -- called with the client as it is given
const { txn } = EtcdClient.prototype

EtcdClient.prototype.txn = function (request, init) {
  const isWrite = init.action.startsWith('write of')
  return txn.call(this, isWrite ? { ...request, compare: [] } : request, init)
}
