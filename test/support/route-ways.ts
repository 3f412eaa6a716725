/**
 * Routes as `ip route show` prints them, with the next hops of groups filled in, because kernels print only the ids of
 * groups.
 */

/** `routes` is the output of `ip [-6] route show …`, `nextHops` that of `ip nexthop show`. */
export function withWays(routes: string, nextHops: string): string {
  const lines = new Map([...nextHops.matchAll(/^id (\d+) (.*)$/gm)].map(([, id = '', rest = '']) => [id, rest]))
  const waysOf = (id: string): string => {
    const rest = lines.get(id) ?? ''
    const members = /^group (\S+)/.exec(rest)?.[1]
    if (members === undefined) return rest
    return members
      .split('/')
      .map((member) => `nexthop ${lines.get(member.split(',')[0] ?? '') ?? ''}`)
      .join(' ')
  }
  return routes.replaceAll(/nhid (\d+) .*/g, (line, id: string) => `${line} ${waysOf(id)}`)
}
