/** Fills some heap, so that the machine has mapped what it maps. */
public class Heap {
    public static void main(String[] args) {
        byte[][] blocks = new byte[100][];
        for (int i = 0; i < blocks.length; i++) {
            blocks[i] = new byte[100_000];
        }
        System.gc();
        System.out.println("java " + blocks.length);
    }
}
