/** /proc/sys, by dotted name; '/' separates parts that contain dots (net/ipv4/conf/eth0.5/rp_filter). */

/** Settings of the kernel, of this network namespace where they are per namespace. */
export interface Sysctl {
  /** Undefined when there is no such setting. */
  read(name: string): Promise<string | undefined>
  /** Throws KernelError. */
  write(name: string, value: string): Promise<void>
}
