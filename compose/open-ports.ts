/** What of a site's nodes pods of other clusters may call: the ports that the site file names, and its DNS server. */
import { parseAddressPort } from '../model/addresses/address-port.ts'
import type { SiteConfig } from '../kubeapi/files/site-file.ts'
import { formatAddress } from '../model/addresses/ip.ts'
import type { OpenPort } from '../model/addresses/open-port.ts'

/** In a real cluster the DNS server is pods, which need no port of a node. */
export function openPorts({
  openHostPorts,
  dns,
  kubernetes,
}: Pick<SiteConfig, 'openHostPorts' | 'dns' | 'kubernetes'>): OpenPort[] {
  const listen = kubernetes === undefined ? dns.listen : []
  const servers = listen.flatMap((text) => {
    const { address, port } = parseAddressPort(text, 'spec.dns.listen')
    const where = address.value === 0n ? {} : { address: formatAddress(address) }
    return (['tcp', 'udp'] as const).map((protocol): OpenPort => ({ protocol, port, ...where }))
  })
  return [...openHostPorts, ...servers]
}
