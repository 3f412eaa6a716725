/** The description of Pod. */
import { choice, dnsLabel, dnsSubdomain, flag, ipAddress, list, map } from './fields.ts'

export const POD_FIELDS = map({
  spec: map({
    nodeName: dnsSubdomain().optional(),
    hostname: dnsLabel().optional(),
    hostNetwork: flag().optional(),
  }).optional(),
  status: map({
    phase: choice<string>(['Pending', 'Running', 'Succeeded', 'Failed', 'Unknown']).optional(),
    podIP: ipAddress().optional(),
    podIPs: list(map({ ip: ipAddress() })).optional(),
  }).optional(),
})
