/** The description of Node. */
import { isAddress } from '../values/values.ts'
import { cidr, flag, list, map, ruled, text } from './fields.ts'

const ADDRESS = ruled(map({ type: text(), address: text() }), (item, context) => {
  if (!item.type.endsWith('IP') || isAddress(item.address)) return
  context.addIssue({ code: 'custom', path: ['address'], message: 'an IPv4 or IPv6 address such as 10.42.0.7' })
})

const TAINT = map({ key: text(), effect: text().optional(), value: text().optional() })

/** Cluster-scoped. */
export const NODE_FIELDS = map({
  spec: map({
    podCIDR: cidr().optional(),
    podCIDRs: list(cidr()).optional(),
    providerID: text().optional(),
    /** Cordoned: the scheduler puts no new pods on it. */
    unschedulable: flag().optional(),
    taints: list(TAINT).optional(),
  }).optional(),
  status: map({
    addresses: list(ADDRESS).optional(),
    /** What node-machine.ts reads of it. */
    nodeInfo: map({
      architecture: text().optional(),
      kubeletVersion: text().optional(),
      operatingSystem: text().optional(),
      osImage: text().optional(),
    }).optional(),
  }).optional(),
})
