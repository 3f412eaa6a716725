/** Pods with addresses of both families that say where they are and who called, and short ways to ask for both. */
import { formatAddress, parseAddress } from '../../../model/values/ip.ts'
import { type Call, type Site, callers, readyPods } from './callers.ts'
import type { Json, KubeObject } from './kube-request.ts'

const IMAGE = 'alpine/socat:1.7.4.4'

// socat loses datagrams while it forks; a loop that never forks does not.
const UDP_SERVER =
  'my $s = IO::Socket::IP->new(Proto => "udp", LocalHost => $ARGV[1], LocalPort => 42, V6Only => 1) or die $@; ' +
  'while (defined $s->recv(my $asked, 512)) { $s->send("$ARGV[0] " . $s->peerhost . "\\n") }'

/** Bytes of an answer on port 43: far more than one packet holds. */
export const BIG_ANSWER = 300_000

/**
 * Answers on port 42, by TCP and UDP of both families, with the site's name and the caller's address. Port 43 answers
 * by TCP with BIG_ANSWER bytes.
 */
export function dualTemplate(site: string, labels: Json): Json {
  const tcp = (name: string, listen: string, answer: string): Json => ({
    name,
    image: IMAGE,
    command: ['socat', `${listen},reuseaddr,fork`, `SYSTEM:${answer}`],
  })
  const udp = (name: string, address: string): Json => ({
    name,
    image: IMAGE,
    command: ['perl', '-MIO::Socket::IP', '-e', UDP_SERVER, site, address],
  })
  const who = `echo ${site} $SOCAT_PEERADDR`
  return {
    metadata: { labels },
    spec: {
      terminationGracePeriodSeconds: 0,
      containers: [
        tcp('tcp4', 'TCP4-LISTEN:42', who),
        tcp('tcp6', 'TCP6-LISTEN:42,ipv6only=1', who),
        udp('udp4', '0.0.0.0'),
        udp('udp6', '::'),
        tcp('big', 'TCP6-LISTEN:43,ipv6only=0', `head -c ${BIG_ANSWER} /dev/zero`),
      ],
    },
  }
}

export type Family = 4 | 6

/** A pod's own addresses. */
export type Both = Readonly<Record<Family, string>>

interface PodObject extends KubeObject {
  readonly status: { readonly podIPs?: readonly { readonly ip: string }[] }
}

/** Waits until that many pods of the namespace are ready; gives their addresses by name. */
export async function dualPods(site: Site, namespace: string, count: number): Promise<ReadonlyMap<string, Both>> {
  await readyPods(site, namespace, count)
  const pods = await site.api.list<PodObject>(`/api/v1/namespaces/${namespace}/pods`)
  return new Map(
    pods.map(({ metadata, status }) => {
      const [v4, v6, ...more] = (status.podIPs ?? []).map(({ ip }) => ip)
      if (v4 === undefined || v6 === undefined || more.length > 0 || v4.includes(':') || !v6.includes(':')) {
        throw new Error(
          `pod ${metadata.name} has the addresses ${JSON.stringify(status.podIPs)}, not one of each family`,
        )
      }
      return [metadata.name, { 4: v4, 6: v6 }]
    }),
  )
}

/** What callers() gives, with addresses in their short form: "c1 fd00:42::7", or "nobody". */
export async function seenBy(site: Site, call: Call): Promise<string> {
  const text = await callers(site, call)
  return text.replace(/\[([0-9a-f:]+)\]/g, (_, address: string) => formatAddress(parseAddress(address)))
}
