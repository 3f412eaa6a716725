/** Plans the objects that are installed in a cluster. */
export { ETCD_LOGIN_VOLUME, EXTERNAL_TRAFFIC_POLICY, TOPOLOGY_FROM, planBroker } from './plan-broker.ts'
export { EVERYWHERE } from './workloads/workloads.ts'
export { planEtcd } from './plan-etcd.ts'
export { planMember } from './plan-member.ts'
